"""The incident page: one HTML file that shows what was lost, where and why; made of plain values, without Spark."""
