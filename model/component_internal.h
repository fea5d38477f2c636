/* component_internal.h -- shared by the component_*.c files. */
#ifndef TSR_MODEL_COMPONENT_INTERNAL_H
#define TSR_MODEL_COMPONENT_INTERNAL_H

#include "model/component.h"

/* tsr_source.read of a component: checked against the tensor's size. */
tsr_status tsr_component_read(const tsr_source *s, int32_t tensor, size_t offset, void *dst,
                              size_t bytes, tsr_err *err);

/* The same of a packed component. A tensor's number is then that of one of its forms. */
tsr_status tsr_component_read_packed(const tsr_source *s, int32_t tensor, size_t offset, void *dst,
                                     size_t bytes, tsr_err *err);

/* The number that tsr_source.read knows tensor `i` by, in the form for `dtype` (TSR_DTYPE_NONE: its
 * own bytes); -1 when a packed component has no such form. */
int32_t tsr_component_number(const tsr_component *c, int32_t i, tsr_dtype dtype);

bool tsr_dtype_is_float(tsr_dtype d);

/* The file that messages name: the one file, or the folder of the shards. */
const char *tsr_component_where(const tsr_component *c);

#endif
