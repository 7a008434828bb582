/* processor.h - what this processor can run: asked by those who choose between forms of code. */
#ifndef TW_KERNELS_PROCESSOR_H
#define TW_KERNELS_PROCESSOR_H

#include <stdbool.h>

bool tw_cpu_has_avx2(void);         /* and FMA, BMI, LZCNT, F16C, MOVBE: x86-64-v3 */
bool tw_cpu_has_avx512(void);       /* and all of that: x86-64-v4 */
bool tw_cpu_has_avx512_vbmi2(void); /* and VBMI: bytes and words are permuted and expanded */

#endif
