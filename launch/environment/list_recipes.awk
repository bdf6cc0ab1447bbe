# Prints, for each recipe file given: target, file, cards, summary, alias; separated by tabs.
#
# The target is the file's stem and its folder's name without hyphens: recipes/llama-7b/pretrain.sh is
# pretrain-llama7b. A header line "# Target  NAME" overrides it, "# Alias  NAME" is another name, which `make help`
# does not show. The summary is the first comment line after "#!", the cards are those of the line GPUS=N.

function finish() {
    if (file != "") print target "\t" file "\t" cards "\t" summary "\t" alias
}

FNR == 1 {
    finish()
    file = FILENAME
    parts = split(file, part, "/")
    stem = part[parts]
    sub(/\.sh$/, "", stem)
    folder = part[parts - 1]
    gsub(/-/, "", folder)
    target = stem "-" folder
    cards = "?"
    summary = alias = ""
}

/^#!/ { next }
/^# Target[ \t]/ { target = $3; next }
/^# Alias[ \t]/ { alias = $3; next }
/^# / && summary == "" { summary = substr($0, 3); sub(/\.$/, "", summary) }
match($0, /^GPUS=[0-9]+/) { cards = substr($0, 6, RLENGTH - 5) }

END { finish() }
