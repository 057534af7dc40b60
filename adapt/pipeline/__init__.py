"""The training job: from two folders to a bundle and a report."""
