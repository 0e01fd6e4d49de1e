"""What rules of several families ask of a program or of a recorded run."""
