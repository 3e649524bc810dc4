"""The app, its one error boundary and one command a file."""
