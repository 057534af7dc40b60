"""Methods of other papers, each written from its description, on the same features as scda."""
