//! PMUs that kernels support (`perf_pmu_register` in Linux 6.18). They distinguish a misspelt name from
//! a PMU that only this machine lacks. Names with a number, such as `uncore_imc_0`, are listed without it.

/// Names of PMUs.
pub(super) const PMUS: &[&str] = &[
    // On every machine (kernel/events, kernel/trace).
    "software",
    "tracepoint",
    "breakpoint",
    "kprobe",
    "uprobe",
    // Cores: arch/x86/events, drivers/perf/arm_pmu*.c, arch/s390, arch/powerpc.
    "cpu",
    "cpu_core",
    "cpu_atom",
    "cpu_lowpower",
    "armv8_pmuv3",
    "cpum_cf",
    "cpum_cf_diag",
    "cpum_sf",
    "pai_crypto",
    "pai_ext",
    "riscv_pmu_sbi",
    // Other PMUs on x86.
    "msr",
    "power",
    "power_core",
    "cstate_core",
    "cstate_pkg",
    "cstate_module",
    "intel_pt",
    "intel_bts",
    "ibs_fetch",
    "ibs_op",
    "amd_df",
    "amd_iommu",
    "amd_l2",
    "amd_l3",
    "amd_nb",
    "amd_umc",
    "iommu",
    "i915",
    // arch/x86/events/intel/uncore*.c, and discovered units without a name of their own.
    "uncore",
    "uncore_arb",
    "uncore_b2cmi",
    "uncore_b2cxl",
    "uncore_b2hot",
    "uncore_b2upi",
    "uncore_bbox",
    "uncore_cbox",
    "uncore_cha",
    "uncore_chacms",
    "uncore_clock",
    "uncore_cncu",
    "uncore_cxlcm",
    "uncore_cxldp",
    "uncore_edc_eclk",
    "uncore_edc_uclk",
    "uncore_fsb",
    "uncore_ha",
    "uncore_hac_arb",
    "uncore_hac_cbox",
    "uncore_hamvf",
    "uncore_hbm",
    "uncore_iio",
    "uncore_iio_free_running",
    "uncore_imc",
    "uncore_imc_dclk",
    "uncore_imc_free_running",
    "uncore_imc_uclk",
    "uncore_irp",
    "uncore_m2iosf",
    "uncore_m2m",
    "uncore_m2pcie",
    "uncore_m3upi",
    "uncore_mbox",
    "uncore_mchbm",
    "uncore_mdf",
    "uncore_mdf_sbo",
    "uncore_pciex16",
    "uncore_pciex8",
    "uncore_pciex4",
    "uncore_pcu",
    "uncore_qpi",
    "uncore_r2pcie",
    "uncore_r3qpi",
    "uncore_rbox",
    "uncore_santa",
    "uncore_sbox",
    "uncore_ubox",
    "uncore_ubr",
    "uncore_upi",
    "uncore_wbox",
    // Other PMUs on ARM and others: drivers/perf.
    "arm_ccn",
    "arm_cmn",
    "arm_dsu",
    "arm_ni",
    "arm_spe",
    "cs_etm",
    "nvidia_cnvlink_pmu",
    "nvidia_nvlink_c2c0_pmu",
    "nvidia_nvlink_c2c1_pmu",
    "nvidia_pcie_pmu",
    "nvidia_scf_pmu",
    "nvidia_ucf_pmu",
    // arch/powerpc/perf.
    "core_imc",
    "hv_24x7",
    "hv_gpci",
    "thread_imc",
    "trace_imc",
    "vpa_pmu",
];
/// Prefixes of names that continue with a unit's kind and position.
const FAMILIES: [&str; 14] = [
    "armv7_",
    "armv8_",
    "armv9_",
    "cxl_pmu_mem",
    "dmar",
    "dwc_rootport_",
    "hisi_",
    "i915_",
    "nest_",
    "nvidia_pcie_pmu_",
    "riscv_",
    "smmuv3_pmcg_",
    "uncore_type_",
    "xe_",
];

/// Whether some machine has a PMU with this name.
pub(super) fn is_known(name: &str) -> bool {
    let is_number = |rest: &str| {
        let place = rest.strip_prefix('_').unwrap_or_default();
        !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    let is_it = |known: &str| {
        let rest = name.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || is_number(rest))
    };
    PMUS.iter().any(|known| is_it(known)) || FAMILIES.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pmu_is_known_with_and_without_a_number() {
        for name in
            ["cpu", "uncore_imc", "uncore_imc_3", "dmar0", "uncore_type_4_1", "hisi_sccl1_l3c0"]
        {
            assert!(is_known(name), "{name}");
        }
        for name in
            ["", "cpux", "cpu0", "uncore_imcs", "uncore_imc_a", "nosuch", "cpu_cycles", "uncore_"]
        {
            assert!(!is_known(name), "{name}");
        }
    }
}
