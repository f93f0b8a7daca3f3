"""Read measurements of loaders alone and of networks."""
