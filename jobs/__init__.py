"""Entry points: arguments, configuration, one call into pipelines, an exit code."""
