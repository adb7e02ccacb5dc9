"""The one loop for everything that learns, with what a resume needs and the folder of a run."""
