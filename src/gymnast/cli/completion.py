"""`gymnast completion SHELL`: the script that makes a shell complete `gymnast` command lines."""

from __future__ import annotations

from typing import Annotated, Final

import typer

_BASH: Final = r"""# bash completion for gymnast. To install it, either
#   echo 'source <(gymnast completion bash)' >> ~/.bashrc
# or, with the package bash-completion (loaded only when needed):
#   mkdir -p ~/.local/share/bash-completion/completions
#   gymnast completion bash > ~/.local/share/bash-completion/completions/gymnast
# and open a new shell.
_gymnast_complete() {
    local -a lines
    mapfile -t lines < <("${COMP_WORDS[0]}" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
    COMPREPLY=("${lines[@]:1}")
    [[ ${lines[0]} == *open* ]] && compopt -o nospace
    [[ ${lines[0]} == *files* ]] && compopt -o filenames
    return 0
}
complete -F _gymnast_complete gymnast
"""
_ZSH: Final = r"""#compdef gymnast
# zsh completion for gymnast. To install it, either
#   echo 'source <(gymnast completion zsh)' >> ~/.zshrc    (after the line with compinit)
# or write it to a folder of $fpath:
#   gymnast completion zsh > "${fpath[1]}/_gymnast"
# and open a new shell.
_gymnast() {
    local -a lines values shown options
    local line
    lines=("${(@f)$("${words[1]}" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    for line in "${(@)lines[2,-1]}"; do
        [[ -n $line ]] || continue
        values+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done
    (( $#values )) || return 1
    [[ $lines[1] == *files* ]] && options+=(-f)
    [[ $lines[1] == *open* ]] && options+=(-S '')
    if [[ "${shown[*]}" == "${values[*]}" ]]; then
        compadd "${options[@]}" -a values
    else
        compadd "${options[@]}" -l -d shown -a values
    fi
}
if [[ "${funcstack[1]}" == _gymnast ]]; then
    _gymnast "$@"
else
    compdef _gymnast gymnast
fi
"""
_FISH: Final = r"""# fish completion for gymnast. To install it:
#   gymnast completion fish > ~/.config/fish/completions/gymnast.fish
# and open a new shell.
function __gymnast_complete
    set -l before (commandline -opc)
    set -l current (string unescape -- (commandline -ct))
    set -l lines ($before[1] __complete fish $before[2..-1] "$current" 2>/dev/null)
    test (count $lines) -gt 1; and printf '%s\n' $lines[2..-1]
end
complete -c gymnast -f -a '(__gymnast_complete)'
"""
SHELLS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def command(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> int:
    """Print the completion script for your shell.

    It completes commands, options, environments, configs, model servers, runs below the current folder, and the keys of
    overrides. The first lines of the script say how to install it; for bash: echo 'source <(gymnast completion bash)'
    >> ~/.bashrc
    """
    from gymnast.errors import suggest

    if shell not in SHELLS:
        raise typer.BadParameter(f"no completion for '{shell}': {suggest(shell, SHELLS)}", param_hint="SHELL")
    print(SHELLS[shell], end="")
    return 0
