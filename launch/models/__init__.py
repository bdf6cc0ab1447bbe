"""Model classes that paddlenlp lacks, made of those it has. launch/upstream says where they are put in."""
