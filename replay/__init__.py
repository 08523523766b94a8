"""The protocol: ordering, the nine steps, ISR, elections, truncation, losses. No Spark, files, clock or chance."""
