"""Which drafter guesses for each request and how deep, decided while the engine runs."""
