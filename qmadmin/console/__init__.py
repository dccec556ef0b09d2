"""What all programs show things with: results as data, screens that draw them, and what is said about them."""
