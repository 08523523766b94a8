"""The replay, in seven rooms (CONTRIBUTING.md): evidence, order, rules, losses. No Spark, files, clock or chance."""
