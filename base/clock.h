/* clock.h -- seconds of a clock that only goes forwards. */
#ifndef TSR_BASE_CLOCK_H
#define TSR_BASE_CLOCK_H

double tsr_clock_seconds(void);

#endif
