"""Arrays of steps × ranks: in memory or in mapped files, and statistics over them."""
