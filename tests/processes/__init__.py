"""What tests and benchmarks share: programs and machines that they start and watch."""
