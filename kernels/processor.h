/* processor.h - instruction sets of this processor, for choosing between variants of code. */
#ifndef TW_KERNELS_PROCESSOR_H
#define TW_KERNELS_PROCESSOR_H

#include <stdbool.h>

bool tw_cpu_has_avx2(void);   /* x86-64-v3: AVX2, FMA, BMI, LZCNT, F16C, MOVBE */
bool tw_cpu_has_avx512(void); /* all of x86-64-v4 */

#endif
