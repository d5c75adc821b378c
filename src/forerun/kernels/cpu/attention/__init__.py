"""Keys and values: rotated, stored, scored and mixed."""
