"""Open-set domain adaptation: recognise the classes you named, find those nobody did."""
