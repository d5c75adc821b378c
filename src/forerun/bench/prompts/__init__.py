"""What is asked: workload classes and named prompts."""
