"""Does the method find a bias that is known to be there?"""
