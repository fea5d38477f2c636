/* open_sim.h -- tests open the simulated device as gen opens the real one. */
#ifndef TSR_TESTS_OPEN_SIM_H
#define TSR_TESTS_OPEN_SIM_H

#include "kernels/plugin.h"
#include "tests/cuda_sim/sim.h"

/* The plug-in over the simulation, and what tests set of it; the program ends where it is missing.
 */
const tsr_plugin *sim_plugin(void);
const sim_control *sim_controls(void);
/* A backend on it; one for each thread that asks. */
const tsr_backend *sim_backend(void);

#endif
