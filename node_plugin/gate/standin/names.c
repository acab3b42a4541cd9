/* Every function of functions.def, implemented or not.
 *
 * This file sees no types. Each symbol is weak here and returns "not supported"; an implementation in another file replaces
 * it at link time. With -Bsymbolic the table holds this library's own functions, even if a gate interposes on the names. */
#include "names.h"

#define JOINED(base, suffix) base##suffix

static int unsupported(void) { return 801; }

#define F(base, suffix, since, class) \
    __attribute__((visibility("default"), weak, alias("unsupported"))) int JOINED(base, suffix)(void);
#include "../driver/functions.def"
#ifdef STANDIN_MORE /* functions of a future driver */
#include STANDIN_MORE
#endif
#undef F

const struct row standin_rows[] = {
#define F(base, suffix, since, class) {#base, #suffix, since, JOINED(base, suffix)},
#include "../driver/functions.def"
#ifdef STANDIN_MORE /* functions of a future driver */
#include STANDIN_MORE
#endif
#undef F
    {"cuGraphInstantiate", "", 12000, cuGraphInstantiateWithFlags}, /* it took over the other's name */
};

const int standin_row_count = sizeof standin_rows / sizeof *standin_rows;
