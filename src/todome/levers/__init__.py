"""What: the settings of each lever and their checks. No module, no tensor."""
