# Wraps the second field of each line, behind a tab, at 80 columns; the first, which ends with its spaces, stands to the
# left of it.

BEGIN { FS = "\t" }

{
    line = $1
    words = split($2, word, " ")
    for (i = 1; i <= words; i++) {
        if (i > 1 && length(line) + 1 + length(word[i]) > 80) {
            print line
            line = sprintf("%" length($1) "s", "")
        }
        line = line (length(line) > length($1) ? " " : "") word[i]
    }
    print line
}
