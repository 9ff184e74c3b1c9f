"""The line to the driver: dialing, orders and reports, queries, signs of life."""
