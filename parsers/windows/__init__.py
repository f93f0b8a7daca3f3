"""Windows of steps: number the steps of lines, and measure the time between the lines."""
