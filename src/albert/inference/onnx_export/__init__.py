"""A model as one ONNX file, written node by node, so that what layers share stands in it once."""
