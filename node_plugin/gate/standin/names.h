/* The table of every function, by name, suffix and version. */
#ifndef STANDIN_NAMES_H
#define STANDIN_NAMES_H

struct row {
    const char *base, *suffix;
    int since;
    int (*function)(void);
};

extern const struct row standin_rows[];
extern const int standin_row_count;

#endif
