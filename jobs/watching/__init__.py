"""Who is told of a run: logs and progress on standard error, metrics in a file, people by a command or a webhook."""
