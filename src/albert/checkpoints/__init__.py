"""Model directories in the Hugging Face layout: written whole, opened checked, names mapped both ways."""
