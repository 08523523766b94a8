"""The incident page: one HTML file that shows what a recording lost, where and why; made of plain values, without Spark."""
