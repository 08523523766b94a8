"""Line parsers: files of a recording in, facts and rejected lines out. No Spark here."""
