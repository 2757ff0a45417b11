"""What happens to programs that misuse malloc, on any allocator."""
