#include "standin.h"
#include <stdlib.h>
struct pool { int ordinal; };
struct pool *make_pool(int ordinal) { struct pool *pool = calloc(1, sizeof *pool); pool->ordinal = ordinal; return pool; }
