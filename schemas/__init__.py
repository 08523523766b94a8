"""What every table and event is. Imports pyarrow and nothing else."""
