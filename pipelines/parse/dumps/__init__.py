"""What dumps of the metadata log and of segments say, and the small files of a log directory. Imports `lines`."""
