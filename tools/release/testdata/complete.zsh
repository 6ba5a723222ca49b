# Types "berth get ex" and a tab into an interactive zsh, and prints the line.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= TERM=dumb; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; print loa''ded"
zpty -r shell line '*loaded*'
zpty -w -n shell $'berth get ex\t\C-a: \C-epanded\n'
zpty -w shell 'fc -ln -1; print do""ne'
zpty -r shell line '*done*'
print -r -- "$line"
