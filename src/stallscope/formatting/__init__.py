"""Write numbers, sums and lists for people."""
