/* cpu_tiers.c -- which instruction sets this machine has and its kernel lets us use.
 *
 * A tier counts only when CPUID has the instructions and XCR0 says that the operating system saves
 * their registers (on other architectures only the portable tier does). */
#include "kernels/cpu/cpu.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xE6 };

/* Vector registers that the system saves; 0 without XGETBV. */
static uint32_t xcr0(void)
{
    uint32_t a, b, c, d, low, high;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool tsr_cpu_has_tier(tsr_cpu_tier tier)
{
    const uint32_t avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    const uint32_t avx512fp16 = 1u << 23;
    uint32_t a, b, c1, d, b7, c7, d7, saved = xcr0();

    if (tier == TSR_TIER_PORTABLE)
        return true;
    if (!__get_cpuid(1, &a, &b, &c1, &d) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return false;
    if (!(c1 & bit_FMA) || !(c1 & bit_F16C) || !(b7 & bit_AVX2) || (saved & XCR0_AVX) != XCR0_AVX)
        return false;
    if (tier == TSR_TIER_AVX2)
        return true;
    if ((b7 & avx512) != avx512 || (saved & XCR0_AVX512) != XCR0_AVX512)
        return false;
    return tier == TSR_TIER_AVX512 || (tier == TSR_TIER_AVX512FP16 && (d7 & avx512fp16));
}

#else

bool tsr_cpu_has_tier(tsr_cpu_tier tier)
{
    return tier == TSR_TIER_PORTABLE;
}

#endif

const char *tsr_cpu_tier_name(tsr_cpu_tier tier)
{
    static const char *const names[] = {"auto", "portable", "avx2", "avx512", "avx512fp16"};

    return (unsigned)tier < sizeof names / sizeof *names ? names[tier] : "unknown";
}

tsr_cpu_tier tsr_cpu_best_tier(void)
{
    tsr_cpu_tier tier = TSR_TIER_AVX512FP16;

    while (tier > TSR_TIER_PORTABLE && !tsr_cpu_backend(tier))
        tier--;
    return tier;
}
