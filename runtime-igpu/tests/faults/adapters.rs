//! No driver, no adapter, an adapter of CPU type.

use runtime_igpu::{AdapterChoice, IgpuAdapter, IgpuOptions, IgpuPlan};

use crate::common::folder;
use crate::{child, text};

/// Points the Vulkan loader at no driver at all.
const NO_DRIVER: [(&str, &str); 2] = [
    ("VK_ICD_FILENAMES", "/nonexistent"),
    ("VK_DRIVER_FILES", "/nonexistent"),
];

#[test]
fn an_adapter_is_found_or_its_absence_is_an_error() {
    match IgpuAdapter::find(&IgpuOptions::default()) {
        Ok(adapter) => println!("adapter: {}", adapter.description()),
        Err(error) => {
            assert!(error.is_no_adapter(), "{error}");
            assert!(error.to_string().contains("driver"), "{error}");
            let plan = IgpuPlan::new(&folder("llama3-tiny-int4"), IgpuOptions::default());
            assert!(plan.is_err_and(|error| error.is_no_adapter()));
            println!("no adapter: {error}");
        }
    }
}

#[test]
fn without_a_driver_there_is_no_adapter() {
    let output = child(
        "adapters::an_adapter_is_found_or_its_absence_is_an_error",
        &NO_DRIVER,
    );
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("no adapter: found no graphics adapter"), "{text}");
}

#[test]
fn tests_that_need_an_adapter_say_so_without_one() {
    let output = child(
        "device_loss::a_lost_device_is_an_error_and_a_new_load_works",
        &NO_DRIVER,
    );
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("not exercised: "), "{text}");
}

#[test]
fn an_adapter_that_is_not_there_is_named_with_those_that_are() {
    let options = IgpuOptions {
        adapter: AdapterChoice::Named("no such adapter".into()),
        ..IgpuOptions::default()
    };
    let error = IgpuAdapter::find(&options).expect_err("there is none of this name");
    assert!(error.is_no_adapter());
    let there = IgpuAdapter::find(&IgpuOptions::default());
    if let Ok(adapter) = there {
        assert!(error.to_string().contains("no such adapter"), "{error}");
        assert!(error.to_string().contains(&adapter.description()), "{error}");
    }
}

#[test]
fn an_adapter_of_cpu_type_is_a_last_resort_and_said() {
    let find = |adapter| {
        IgpuAdapter::find(&IgpuOptions {
            adapter,
            ..IgpuOptions::default()
        })
    };
    let Ok(found) = find(AdapterChoice::Auto) else {
        eprintln!("not exercised: adapters of CPU type: no adapter at all");
        return;
    };
    match find(AdapterChoice::GpuOnly) {
        Ok(gpu) => {
            assert!(!found.is_cpu(), "a GPU goes first");
            assert_eq!((gpu.notice(), found.notice()), (None, None));
        }
        Err(error) => {
            assert!(error.is_no_adapter(), "{error}");
            assert!(found.is_cpu());
            let notice = found.notice().expect("it is said");
            assert!(notice.contains(&found.description()), "{notice}");
        }
    }
    if let Ok(cpu) = find(AdapterChoice::Cpu) {
        assert!(cpu.is_cpu());
    }
}
