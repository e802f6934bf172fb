"""The parts of one cluster job (policy servers, sandbox, collector) and how they find each other."""
