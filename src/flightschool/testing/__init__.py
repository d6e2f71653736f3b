"""Public fakes and contract suites for code that builds on flightschool. The product itself never imports this."""
