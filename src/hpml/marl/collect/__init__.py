"""Playing for the learner: compiled environments inside the loop, hosted ones in worker processes."""
