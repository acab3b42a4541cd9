/* Every function of functions.def, defined or not.
 *
 * This file sees no types: each symbol is a weak one here that answers "not supported", and what another file of the
 * library defines takes its place when it is linked. With -Bsymbolic the table holds this library's own functions: a gate
 * that interposes on the names does not get into it.
 */
#include "names.h"

#define JOINED(base, suffix) base##suffix

static int unsupported(void) { return 801; }

#define F(base, suffix, since) \
    __attribute__((visibility("default"), weak, alias("unsupported"))) int JOINED(base, suffix)(void);
#include "../driver/functions.def"
#ifdef STANDIN_MORE /* functions of a driver to come */
#include STANDIN_MORE
#endif
#undef F

const struct row standin_rows[] = {
#define F(base, suffix, since) {#base, #suffix, since, JOINED(base, suffix)},
#include "../driver/functions.def"
#ifdef STANDIN_MORE /* functions of a driver to come */
#include STANDIN_MORE
#endif
#undef F
    {"cuGraphInstantiate", "", 12000, cuGraphInstantiateWithFlags}, /* the one that took over the other's name */
};

const int standin_row_count = sizeof standin_rows / sizeof *standin_rows;
