/* Runs the rules of visible.c as a server: one answer for each question.
 *
 * A question is six strings, each with its terminator: the file, then the values of given, ours, wanted, order, by; a value
 * begins with '+', '-' means not set. The answer is '=', the value and the user's own choice in the same form; or '.' for no
 * change. */
#include "../../../node_plugin/gate/driver/visible.h"

#include <stdio.h>
#include <stdlib.h>

static char *ask(void) {
    char *line = NULL;
    size_t room = 0;
    if (getdelim(&line, &room, 0, stdin) >= 0) return line;
    free(line);
    return NULL;
}

static const char *value(const char *word) { return *word == '+' ? word + 1 : NULL; }

int main(void) {
    for (char *words[6]; (words[0] = ask());) {
        for (int i = 1; i < 6; i++)
            if (!(words[i] = ask())) return 1;
        struct visible now = {value(words[1]), value(words[2]), value(words[3]), value(words[4]), value(words[5])};
        char to[VISIBLE_ROOM];
        const char *own;
        if (!visible_value(words[0], &now, to, &own)) fputs(".", stdout);
        else printf("=%s%c%s%s", to, 0, own ? "+" : "-", own ? own : "");
        putchar(0);
        fflush(stdout);
        for (int i = 0; i < 6; i++) free(words[i]);
    }
    return 0;
}
