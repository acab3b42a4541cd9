"""The product as it is delivered: images, chart, examples."""
